#pragma once
// The part of Apple's <objc/runtime.h> that metal-cpp uses. The functions live in src/host/runtime.cpp.

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct objc_class;
struct objc_object {
  struct objc_class* isa;
};
typedef struct objc_object* id;
typedef struct objc_class* Class;
typedef struct objc_selector* SEL;
typedef struct objc_protocol Protocol;
typedef signed char BOOL;

SEL sel_registerName(const char* name);
const char* sel_getName(SEL selector);

// metal-cpp keeps classes and protocols as void*, as C++ sees no difference to Apple's typed pointers.
void* objc_lookUpClass(const char* name);
void* objc_getClass(const char* name);
void* objc_getProtocol(const char* name);
const char* object_getClassName(id object);
void* object_getClass(id object);

#ifdef __cplusplus
}
#endif
