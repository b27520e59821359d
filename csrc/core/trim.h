#pragma once

namespace saragossa {

/// Gives freed heap memory back to the system, where the C library keeps it for itself (glibc).
/// Worth a call after loading: a tokenizer's parser leaves tens of megabytes behind.
void trim_heap();

}  // namespace saragossa
