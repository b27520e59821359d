// Scalar types and the words that the other headers use.
#pragma once

#define EMULATOR_INLINE inline __attribute__((always_inline))
// Runs on behalf of several lanes: its accesses are none of a kernel's.
#define EMULATOR_UNSEEN __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation))
// As a default argument: the caller's place in the source.
#define EMULATOR_SITE \
  EmulatorSite site = EmulatorSite { __builtin_FILE(), __builtin_LINE(), __builtin_COLUMN() }

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef _Float16 half;  // rounded after each operation
typedef __bf16 bfloat;  // likewise

constexpr half operator""h(long double x) { return static_cast<half>(x); }
constexpr half operator""h(unsigned long long x) { return static_cast<half>(x); }
constexpr bfloat operator"" bf(long double x) { return static_cast<bfloat>(static_cast<float>(x)); }
constexpr bfloat operator"" bf(unsigned long long x) { return static_cast<bfloat>(static_cast<float>(x)); }
