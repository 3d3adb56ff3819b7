# cmake -DSOURCES=... -DD3=... -DOUTPUT=... -P embed.cmake: puts the page together, as OUTPUT.html, and its bytes into
# OUTPUT.cpp. The page is one file, so that it can be kept and sent: style and script stand in it, and its policy names
# both by their hashes. So no other script can run in it.

# What a policy calls a text: its SHA-256 in base64.
function(hash_source text out)
  string(SHA256 hex "${text}")
  string(APPEND hex "0000")  # the 33rd byte that base64 takes to whole groups, and one digit of the 34th
  set(digits ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(base64 "")
  foreach(group RANGE 10)
    math(EXPR at "${group} * 6")
    string(SUBSTRING "${hex}" ${at} 6 three)
    foreach(shift 18 12 6 0)
      math(EXPR digit "(0x${three} >> ${shift}) & 63")
      string(SUBSTRING ${digits} ${digit} 1 character)
      string(APPEND base64 ${character})
    endforeach()
  endforeach()
  string(SUBSTRING "${base64}" 0 43 base64)
  set(${out} "'sha256-${base64}='" PARENT_SCOPE)
endfunction()

set(script "")
foreach(name model dom chains charts sections source main)
  file(READ "${SOURCES}/${name}.js" part)
  string(APPEND script "${part}")
endforeach()
file(READ "${D3}" d3)
string(PREPEND script "${d3}\n")
file(READ "${SOURCES}/style.css" style)
file(READ "${SOURCES}/page.html" page)
hash_source("${script}" script_hash)
hash_source("${style}" style_hash)
set(policy "default-src 'none'; script-src ${script_hash}; style-src ${style_hash}; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
string(REPLACE "@POLICY@" "${policy}" page "${page}")
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
file(WRITE "${OUTPUT}.html" "${page}")

file(READ "${OUTPUT}.html" bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE "${OUTPUT}.cpp" "#include \"tools/web/page.h\"

namespace weightcast {
namespace {

const unsigned char kPage[] = {
${bytes}
};

}  // namespace

std::string_view page_html() { return {reinterpret_cast<const char*>(kPage), sizeof kPage}; }
std::string_view page_policy() { return \"${policy}\"; }

}  // namespace weightcast
")
