#pragma once
// The three ways to send a message on x86-64; see src/host/message_send.cpp for how they are typed.

#include "runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

void objc_msgSend(void);
void objc_msgSend_stret(void);
void objc_msgSend_fpret(void);

#ifdef __cplusplus
}
#endif
