#pragma once
// Only named by metal-cpp's umbrella; no simd type crosses the modelled classes.
