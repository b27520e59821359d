#pragma once
// Threads and GPU work of a process do not exist in its forked children.

namespace saragossa {

/// How many forks lie between this process and the one that first asked: what was made before one has another number.
int forks();

}  // namespace saragossa
