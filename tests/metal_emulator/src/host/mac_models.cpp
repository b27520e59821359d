#include "mac_models.h"

#include <cstdio>
#include <cstdlib>

#include "kernel/settings.h"

namespace emulator::host {
namespace {

constexpr MacModel kModels[] = {
    {"Apple M1", 7, "applegpu_g13g"},        {"Apple M1 Pro", 7, "applegpu_g13s"},
    {"Apple M1 Max", 7, "applegpu_g13s"},    {"Apple M1 Ultra", 7, "applegpu_g13d"},
    {"Apple M2", 8, "applegpu_g14g"},        {"Apple M2 Pro", 8, "applegpu_g14s"},
    {"Apple M2 Max", 8, "applegpu_g14s"},    {"Apple M2 Ultra", 8, "applegpu_g14d"},
    {"Apple M4", 9, "applegpu_g16g"},        {"Apple M4 Pro", 9, "applegpu_g16s"},
    {"Apple M4 Max", 9, "applegpu_g16s"},    {"Apple M3", 9, "applegpu_g15g"},
    {"Apple M3 Pro", 9, "applegpu_g15s"},    {"Apple M3 Max", 9, "applegpu_g15s"},
    {"Apple M3 Ultra", 9, "applegpu_g15d"},  {"Apple M5", 10, "applegpu_g17g"},
    {"Apple M5 Pro", 10, "applegpu_g17s"},   {"Apple M5 Max", 10, "applegpu_g17s"},
    {"Apple M5 Ultra", 10, "applegpu_g17d"}, {"Apple Paravirtual device", 5, "paravirtual"},
};

}  // namespace

std::span<const MacModel> mac_models() { return kModels; }

const MacModel& mac_model() {
  const Settings& s = settings();
  for (const MacModel& model : kModels) {
    if (s.device.empty() ? model.gpu_family == s.gpu_family : s.device == model.name) return model;
  }
  const bool by_name = !s.device.empty();
  std::fprintf(stderr,
               "metal emulator: %s %s is no Mac of src/host/mac_models.cpp; take \"Apple M1\" to \"Apple M5 Ultra\", "
               "or families 5 and 7 to 10\n",
               by_name ? "SARAGOSSA_METAL_EMULATOR_DEVICE" : "SARAGOSSA_METAL_EMULATOR_GPU_FAMILY",
               by_name ? s.device.c_str() : std::to_string(s.gpu_family).c_str());
  std::abort();
}

}  // namespace emulator::host
