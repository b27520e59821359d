#pragma once
// metal-cpp asks these before it uses types that only some of Apple's systems have.
#define TARGET_OS_MAC 0
#define TARGET_OS_OSX 0
#define TARGET_OS_IPHONE 0
#define TARGET_OS_SIMULATOR 0
