# What the host side adds: its stubs of Apple's system headers, and the target that production sources link to be
# built for the emulator: emulated_metal = metal-cpp + stubs + the emulator.
target_include_directories(metal_emulator PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/include/host)

include(${CMAKE_CURRENT_SOURCE_DIR}/../../tools/metal_cpp.cmake)

add_library(emulated_metal INTERFACE)
target_include_directories(emulated_metal SYSTEM INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include/host)
target_compile_options(emulated_metal INTERFACE -fblocks)
target_link_libraries(emulated_metal INTERFACE metal_cpp metal_emulator)

# Tests of the host side: one program, one case a run (tests/test_host.py).
file(GLOB host_test_sources CONFIGURE_DEPENDS tests/host/*.cpp)
add_executable(emulator_host_tests EXCLUDE_FROM_ALL ${host_test_sources})
target_link_libraries(emulator_host_tests PRIVATE emulated_metal)
target_compile_options(emulator_host_tests PRIVATE -Wall -Wextra $<$<BOOL:${SARAGOSSA_WERROR}>:-Werror>)

# As a Python module comes in: by dlopen, its symbols local.
add_library(emulator_host_module MODULE EXCLUDE_FROM_ALL tests/host/module/module.cpp)
target_link_libraries(emulator_host_module PRIVATE emulated_metal)
set_target_properties(emulator_host_module PROPERTIES CXX_VISIBILITY_PRESET default)
