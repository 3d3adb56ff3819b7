# Debian packages, by CPack; ./run deb makes them. Each is made of components that `cmake --install` knows, too:
#
#   weightcast          programs, deploy                 the daemon and the engine, with units, examples, man pages, completions
#   weightcast-train    learner_program, learner_deploy  the learner, which takes LibTorch
#   libweightcast0      library                          what programs and Python load
#   libweightcast-dev   development                      header, CMake package, pkg-config
#   python3-weightcast  python                           for the system's Python 3

set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1 CACHE STRING "Which packaging of this version it is")
set(version "${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}")

# The package's files, and the metadata by which other packages find its plug-ins (entry points).
install(DIRECTORY python/weightcast DESTINATION lib/python3/dist-packages COMPONENT python
  FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
install(CODE "
  set(made \"${PROJECT_BINARY_DIR}/python-metadata\")
  file(REMOVE_RECURSE \"\${made}\")
  file(MAKE_DIRECTORY \"\${made}\")
  execute_process(COMMAND /usr/bin/python3 setup.py --quiet egg_info --egg-base \"\${made}\"
    WORKING_DIRECTORY \"${PROJECT_SOURCE_DIR}/python\" COMMAND_ERROR_IS_FATAL ANY)
  file(INSTALL \"\${made}/weightcast.egg-info\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/python3/dist-packages\")
" COMPONENT python)
foreach(of programs/weightcast learner_program/weightcast-train library/libweightcast0 development/libweightcast-dev python/python3-weightcast)
  get_filename_component(component ${of} DIRECTORY)
  get_filename_component(package ${of} NAME)
  install(FILES ${debian}/copyright DESTINATION share/doc/${package} COMPONENT ${component})
  configure_file(${debian}/changelog.in ${PROJECT_BINARY_DIR}/changelogs/${package}/changelog.Debian @ONLY)
  install(CODE "
    execute_process(COMMAND gzip -9nkf \"${PROJECT_BINARY_DIR}/changelogs/${package}/changelog.Debian\" COMMAND_ERROR_IS_FATAL ANY)
    file(INSTALL \"${PROJECT_BINARY_DIR}/changelogs/${package}/changelog.Debian.gz\"
      DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/doc/${package}\")
  " COMPONENT ${component})
endforeach()
# Beside each other as in a checkout, so that links between them lead somewhere.
install(FILES README.md ARCHITECTURE.md DESTINATION share/doc/weightcast COMPONENT deploy)
install(DIRECTORY docs examples DESTINATION share/doc/weightcast COMPONENT deploy PATTERN "CMakeLists.txt" EXCLUDE PATTERN "__pycache__" EXCLUDE
  PATTERN "mkdocs.yml" EXCLUDE PATTERN "site.css" EXCLUDE)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME weightcast)
set(CPACK_PACKAGE_CONTACT "weightcast <weightcast@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "carries a trainer's weights to a fleet of inference workers")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
# Units name the programs by the prefix, so it has to be the one that they will have.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
# ./run deb has built what is packed.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL programs deploy learner_program learner_deploy library development python)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE "")

set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME weightcast)
set(CPACK_DEBIAN_DAEMON_DESCRIPTION
  "The daemon that each host runs: the origin on the trainer's, a worker on each inference host. Weights travel as lossless patches along chains of workers, and every byte is verified. With the command line and a small inference engine, weightcast-engine.")
set(CPACK_DEBIAN_DAEMON_PACKAGE_SECTION net)
set(CPACK_DEBIAN_DAEMON_PACKAGE_DEPENDS "adduser")
set(CPACK_DEBIAN_DAEMON_PACKAGE_RECOMMENDS "libcurl4")
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA
  "${debian}/weightcast/postinst;${debian}/weightcast/prerm;${debian}/weightcast/postrm")
set(CPACK_DEBIAN_LEARNER_PACKAGE_NAME weightcast-train)
set(CPACK_DEBIAN_LEARNER_DESCRIPTION
  "The learner of a GRPO loop: it trains on the rollouts of weightcast's workers, by LibTorch, and publishes each step's weights to them.")
set(CPACK_DEBIAN_LEARNER_PACKAGE_SECTION science)
set(CPACK_DEBIAN_LEARNER_PACKAGE_DEPENDS "weightcast (= ${version})")
set(CPACK_DEBIAN_LEARNER_PACKAGE_CONTROL_EXTRA
  "${debian}/weightcast-train/postinst;${debian}/weightcast-train/prerm;${debian}/weightcast-train/postrm")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libweightcast0)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION
  "The library by which a trainer publishes through its host's daemon, and by which an inference engine follows it.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${debian}/libweightcast0/triggers")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libweightcast-dev)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
  "The header for C and C++, for CMake's find_package() and for pkg-config.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libweightcast0 (= ${version})")
set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-weightcast)
set(CPACK_DEBIAN_PYTHON_DESCRIPTION
  "Publisher and subscription for the system's Python 3, with plug-ins for vLLM, SGLang, TRL, verl and other trainers.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3 (>= 3.9), libweightcast0 (= ${version})")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "python3-numpy")
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
  "${debian}/python3-weightcast/postinst;${debian}/python3-weightcast/prerm")

include(CPack)
cpack_add_component_group(daemon)
cpack_add_component(programs GROUP daemon)
cpack_add_component(deploy GROUP daemon)
cpack_add_component_group(learner)
cpack_add_component(learner_program GROUP learner)
cpack_add_component(learner_deploy GROUP learner)
