#include "patch/snapshot/sidecar.h"

#include "patch/snapshot/file_table.h"

namespace weightcast {

bool is_sidecar_name(std::string_view name) {
  return check_file_name(name).has_value() && is_kind_of_snapshot_file(name) && !name.ends_with(".safetensors") &&
         name != "model.safetensors.index.json";
}

}  // namespace weightcast
