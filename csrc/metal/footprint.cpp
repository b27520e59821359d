#include "metal/footprint.h"

#include <mach/mach.h>

namespace saragossa::metal {

int64_t phys_footprint() {
  task_vm_info_data_t info{};
  mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
  const kern_return_t result = task_info(mach_task_self(), TASK_VM_INFO, reinterpret_cast<task_info_t>(&info), &count);
  return result == KERN_SUCCESS ? static_cast<int64_t>(info.phys_footprint) : 0;
}

}  // namespace saragossa::metal
