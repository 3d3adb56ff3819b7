# shellcheck shell=bash
# The documentation as a site. Read by ./run.

# site [DIR]: makes build/site. DIR holds the programs whose manual pages it shows; without it they are built first.
cmd_site() {
  install_packages "${packages_site[@]}"
  local programs=${1:-}
  if [[ -z $programs ]]; then
    install_packages "${packages_build[@]}"
    build release weightcast weightcast-train weightcast-engine
    programs=build/release/tools
  fi
  # Debian's interpreter has Debian's mkdocs.
  /usr/bin/python3 -B scripts/site.py pages "$programs" build/site-pages
  rm -rf build/site
  /usr/bin/python3 -B -m mkdocs build --strict --quiet --config-file docs/mkdocs.yml
  /usr/bin/python3 -B scripts/site.py check build/site
  say "built; the site begins at build/site/index.html"
}
