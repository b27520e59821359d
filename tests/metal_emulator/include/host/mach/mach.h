#pragma once
// What a program asks Mach about its own memory. task_info() is in src/host/darwin.cpp and answers from /proc.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int kern_return_t;
typedef unsigned int natural_t;
typedef int integer_t;
typedef unsigned int mach_port_t;
typedef mach_port_t task_t;
typedef mach_port_t task_name_t;
typedef mach_port_t task_id_token_t;
typedef natural_t mach_msg_type_number_t;
typedef natural_t task_flavor_t;
typedef integer_t* task_info_t;
typedef uint64_t mach_vm_size_t;

#define KERN_SUCCESS 0
#define KERN_INVALID_ARGUMENT 4

// The head of Apple's structure in Apple's order; what lies behind phys_footprint is left out.
#pragma pack(push, 4)
struct task_vm_info {
  mach_vm_size_t virtual_size;
  integer_t region_count;
  integer_t page_size;
  mach_vm_size_t resident_size;
  mach_vm_size_t resident_size_peak;
  mach_vm_size_t device;
  mach_vm_size_t device_peak;
  mach_vm_size_t internal;
  mach_vm_size_t internal_peak;
  mach_vm_size_t external;
  mach_vm_size_t external_peak;
  mach_vm_size_t reusable;
  mach_vm_size_t reusable_peak;
  mach_vm_size_t purgeable_volatile_pmap;
  mach_vm_size_t purgeable_volatile_resident;
  mach_vm_size_t purgeable_volatile_virtual;
  mach_vm_size_t compressed;
  mach_vm_size_t compressed_peak;
  mach_vm_size_t compressed_lifetime;
  mach_vm_size_t phys_footprint;
};
#pragma pack(pop)
typedef struct task_vm_info task_vm_info_data_t;

#define TASK_VM_INFO 22
#define TASK_VM_INFO_COUNT ((mach_msg_type_number_t)(sizeof(task_vm_info_data_t) / sizeof(natural_t)))

task_t mach_task_self(void);
kern_return_t task_info(task_name_t task, task_flavor_t flavor, task_info_t out, mach_msg_type_number_t* count);

#ifdef __cplusplus
}
#endif
