#pragma once
// One function a family: puts its classes and their selectors into the runtime.

namespace emulator::host {

void install_object();
void install_autorelease_pool();
void install_string();
void install_collections();
void install_number();
void install_error();
void install_url();
void install_process_info();

void install_device();
void install_buffer();
void install_library();
void install_compute_pipeline();
void install_binary_archive();
void install_command_queue();
void install_command_buffer();
void install_compute_encoder();
void install_blit_encoder();
void install_event();
void install_residency_set();

/// All of them.
void install_classes();

}  // namespace emulator::host
