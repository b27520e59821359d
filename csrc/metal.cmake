# The Metal device: csrc/metal, and the kernels of metal/ embedded as source. On a Mac with Apple's frameworks, elsewhere
# on the emulator.

file(GLOB METAL_SOURCES CONFIGURE_DEPENDS metal/*.cpp)
file(GLOB_RECURSE KERNEL_FILES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/metal/*.metal ${PROJECT_SOURCE_DIR}/metal/*.h)
set(KERNEL_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/kernel_sources.cpp)
add_custom_command(
  OUTPUT ${KERNEL_SOURCES}
  COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/embed_metal.py ${PROJECT_SOURCE_DIR}/metal ${KERNEL_SOURCES}
  DEPENDS ${KERNEL_FILES} ${PROJECT_SOURCE_DIR}/tools/embed_metal.py
  VERBATIM)
target_sources(saragossa_core PRIVATE ${METAL_SOURCES} ${KERNEL_SOURCES})

if(SARAGOSSA_METAL_EMULATOR)
  target_link_libraries(saragossa_core PUBLIC emulated_metal)
  target_compile_options(saragossa_core PRIVATE -Wno-deprecated-declarations)  # inside libstdc++ 12's <algorithm>
else()
  include(${PROJECT_SOURCE_DIR}/tools/metal_cpp.cmake)
  # Without CoreGraphics a command-line program may be given no GPU.
  target_link_libraries(saragossa_core PUBLIC metal_cpp "-framework Foundation" "-framework Metal"
                                              "-framework CoreGraphics")
endif()
