#pragma once
#include <stdint.h>

typedef const void* CFTypeRef;
typedef double CFTimeInterval;
typedef const struct __CFString* CFStringRef;
typedef signed long CFIndex;
