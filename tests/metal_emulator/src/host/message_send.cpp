// objc_msgSend for x86-64.
//
// metal-cpp types a message by casting: for `buffer->setLabel(s)` it casts &objc_msgSend to
// void (*)(const void*, SEL, NS::String*) and calls that. So objc_msgSend is entered with the registers and the
// stack of the method's own signature, which it does not know. It must leave them as they are, find the method for
// (receiver, selector) and jump to it: the method then returns straight to metal-cpp's caller.
//
// The general path below saves all registers that can carry an argument in the System V convention (six integer
// ones, rax for variadic calls, eight vector ones), asks emulator_find_method (runtime.cpp), restores them and
// jumps. Arguments on the stack (MTLSize by value) are never touched.
//
//   objc_msgSend        receiver in rdi, selector in rsi; results in rax, rdx or xmm0
//   objc_msgSend_fpret  the same; metal-cpp takes it for methods that return float or double
//   objc_msgSend_stret  methods that return a structure above 16 bytes (MTLSize): rdi holds the address of the
//                       result, receiver and selector move to rsi and rdx. A C++ function that returns such a
//                       structure expects exactly this, so the jump needs no other care.
//
// A message to nil answers zero in every register that can carry a result; the structure form leaves the result's
// bytes alone, which is what older Apple runtimes do: do not read it.

#if !defined(__x86_64__)
#error "the Metal emulator's message dispatch is written for x86-64: port message_send.cpp (arm64 has no _stret form)"
#endif

// clang-format off
#define SAVE_ARGUMENTS                    \
  "  push %rbp\n"                         \
  "  mov  %rsp, %rbp\n"                   \
  "  sub  $0xd0, %rsp\n"                  \
  "  mov  %rdi, 0x00(%rsp)\n"             \
  "  mov  %rsi, 0x08(%rsp)\n"             \
  "  mov  %rdx, 0x10(%rsp)\n"             \
  "  mov  %rcx, 0x18(%rsp)\n"             \
  "  mov  %r8,  0x20(%rsp)\n"             \
  "  mov  %r9,  0x28(%rsp)\n"             \
  "  mov  %rax, 0x30(%rsp)\n"             \
  "  movaps %xmm0, 0x40(%rsp)\n"          \
  "  movaps %xmm1, 0x50(%rsp)\n"          \
  "  movaps %xmm2, 0x60(%rsp)\n"          \
  "  movaps %xmm3, 0x70(%rsp)\n"          \
  "  movaps %xmm4, 0x80(%rsp)\n"          \
  "  movaps %xmm5, 0x90(%rsp)\n"          \
  "  movaps %xmm6, 0xa0(%rsp)\n"          \
  "  movaps %xmm7, 0xb0(%rsp)\n"

#define RESTORE_ARGUMENTS_AND_JUMP        \
  "  mov  %rax, %r11\n"                   \
  "  mov  0x00(%rsp), %rdi\n"             \
  "  mov  0x08(%rsp), %rsi\n"             \
  "  mov  0x10(%rsp), %rdx\n"             \
  "  mov  0x18(%rsp), %rcx\n"             \
  "  mov  0x20(%rsp), %r8\n"              \
  "  mov  0x28(%rsp), %r9\n"              \
  "  mov  0x30(%rsp), %rax\n"             \
  "  movaps 0x40(%rsp), %xmm0\n"          \
  "  movaps 0x50(%rsp), %xmm1\n"          \
  "  movaps 0x60(%rsp), %xmm2\n"          \
  "  movaps 0x70(%rsp), %xmm3\n"          \
  "  movaps 0x80(%rsp), %xmm4\n"          \
  "  movaps 0x90(%rsp), %xmm5\n"          \
  "  movaps 0xa0(%rsp), %xmm6\n"          \
  "  movaps 0xb0(%rsp), %xmm7\n"          \
  "  leave\n"                             \
  "  jmp  *%r11\n"

__asm__(
  ".text\n"
  ".globl objc_msgSend\n"
  ".type  objc_msgSend, @function\n"
  "objc_msgSend:\n"
  "  test %rdi, %rdi\n"
  "  je   1f\n"
  SAVE_ARGUMENTS
  "  call emulator_find_method\n"
  RESTORE_ARGUMENTS_AND_JUMP
  "1:\n"
  "  xor  %eax, %eax\n"
  "  xor  %edx, %edx\n"
  "  pxor %xmm0, %xmm0\n"
  "  pxor %xmm1, %xmm1\n"
  "  ret\n"
  ".size objc_msgSend, . - objc_msgSend\n"

  ".globl objc_msgSend_fpret\n"
  ".type  objc_msgSend_fpret, @function\n"
  "objc_msgSend_fpret:\n"
  "  jmp  objc_msgSend\n"
  ".size objc_msgSend_fpret, . - objc_msgSend_fpret\n"

  ".globl objc_msgSend_stret\n"
  ".type  objc_msgSend_stret, @function\n"
  "objc_msgSend_stret:\n"
  "  test %rsi, %rsi\n"
  "  je   2f\n"
  SAVE_ARGUMENTS
  "  mov  %rsi, %rdi\n"
  "  mov  %rdx, %rsi\n"
  "  call emulator_find_method\n"
  RESTORE_ARGUMENTS_AND_JUMP
  "2:\n"
  "  mov  %rdi, %rax\n"
  "  ret\n"
  ".size objc_msgSend_stret, . - objc_msgSend_stret\n"
  ".section .note.GNU-stack,\"\",@progbits\n"
  ".text\n");
// clang-format on
