// What test_host.py loads as a Python module is loaded.
#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#include <Foundation/Foundation.hpp>
#include <Metal/Metal.hpp>

/// Whether metal-cpp found the constants of Foundation.
extern "C" int has_constants() { return NS::LocalizedDescriptionKey != nullptr; }

/// Whether a kernel library, which needs the emulator's symbols, can be loaded.
extern "C" int compiles() {
  NS::AutoreleasePool* pool = NS::AutoreleasePool::alloc()->init();
  NS::Error* error = nullptr;
  const char* source =
      "#include <metal_stdlib>\nkernel void f() { threadgroup_barrier(metal::mem_flags::mem_none); }\n";
  MTL::Device* device = MTL::CreateSystemDefaultDevice();
  MTL::Library* library = device->newLibrary(NS::String::string(source, NS::UTF8StringEncoding), nullptr, &error);
  const bool good = library != nullptr;
  library->release();
  pool->release();
  return good;
}
