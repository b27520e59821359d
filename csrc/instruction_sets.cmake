# Compile options of the core, and its kernels per instruction set. tests/cpp includes this, too.

# A fused multiply-add only where the source says fma: instruction sets agree bit for bit where they promise to.
add_compile_options(-ffp-contract=off)

set(WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
if(SARAGOSSA_WERROR)
  list(APPEND WARNINGS -Werror)
endif()

set(CSRC ${CMAKE_CURRENT_LIST_DIR})
set(ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c
    -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # its own header starts from undefined vectors (GCC bug 105593)
  list(APPEND ISA_FLAGS_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(ISA_FLAGS_neon -march=armv8.2-a+dotprod)

# An object library of csrc/cpu/<name>/*.cpp with that set's flags, as part of `target`.
function(saragossa_instruction_set target name)
  file(GLOB sources CONFIGURE_DEPENDS ${CSRC}/cpu/${name}/*.cpp)
  add_library(${target}_${name} OBJECT ${sources})
  target_include_directories(${target}_${name} PRIVATE ${CSRC} ${CSRC}/../metal)
  target_compile_options(${target}_${name} PRIVATE ${WARNINGS} ${ISA_FLAGS_${name}})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${name}>)
endfunction()

# Those of the architecture that is built for.
function(saragossa_instruction_sets target)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    saragossa_instruction_set(${target} avx2)
    saragossa_instruction_set(${target} avx512)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    saragossa_instruction_set(${target} neon)
  endif()
endfunction()
