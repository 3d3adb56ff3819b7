# The program of the release before, which tests/upgrade needs: only `./run test upgrade` builds it. It is one job of several
# minutes, and Ninja begins what it reads first: so this stands before all else.
if(BUILD_TESTING AND WEIGHTCAST_TRANSPORT AND NOT WEIGHTCAST_SANITIZE)
  add_custom_target(previous_release
    COMMAND ${PROJECT_SOURCE_DIR}/tests/upgrade/build_previous.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/previous_release
    COMMENT "Building the program of the release before"
    VERBATIM)
  weightcast_label_target(previous_release upgrade)
endif()
