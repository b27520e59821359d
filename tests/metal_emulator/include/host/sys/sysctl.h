#pragma once
// glibc has no sysctl; src/host/darwin.cpp answers the names that a Mac program asks.

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

int sysctlbyname(const char* name, void* old_value, size_t* old_size, void* new_value, size_t new_size);

#ifdef __cplusplus
}
#endif
