#pragma once
// Runs of a batch and the slots of their states (csrc/op_types.h). Arguments are what the device tensors hold.

#define SG_KEPT_ROWS 8  // a run of more rows keeps the state of its last one alone

/// A slot that is read: as told where it exists, or -1 (zeros); -2, which gives NaN, where it does not.
inline int sg_slot_in(int slot, uint slots) { return slot < -1 || slot >= int(slots) ? -2 : slot; }

/// Whether a row's state is written there.
inline bool sg_keeps(int slot, uint slots) { return slot >= 0 && slot < int(slots); }
