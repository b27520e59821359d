# The target metal_cpp: Apple's metal-cpp headers, pinned by tools/fetch_metal_cpp.py. -DSARAGOSSA_METAL_CPP=FOLDER takes
# a folder that has them already (no network).
if(NOT TARGET metal_cpp)
  set(SARAGOSSA_METAL_CPP "" CACHE PATH "Folder with Apple's metal-cpp headers (Foundation/, Metal/)")
  set(metal_cpp_folder "${SARAGOSSA_METAL_CPP}")
  if(NOT metal_cpp_folder)
    if(NOT Python_EXECUTABLE)
      find_package(Python REQUIRED COMPONENTS Interpreter)
    endif()
    set(metal_cpp_folder "${CMAKE_BINARY_DIR}/metal_cpp")
    execute_process(COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/fetch_metal_cpp.py" "${metal_cpp_folder}"
                    RESULT_VARIABLE failed ERROR_VARIABLE message)
    if(failed)
      message(FATAL_ERROR "${message}")
    endif()
  endif()
  add_library(metal_cpp INTERFACE)
  target_include_directories(metal_cpp SYSTEM INTERFACE "${metal_cpp_folder}")
endif()
