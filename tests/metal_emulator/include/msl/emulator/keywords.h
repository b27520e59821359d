// Address spaces mean nothing here (the strict pass checks them); constant data is const.
#pragma once
#define METAL_FUNC inline __attribute__((always_inline))
#define device
#define constant const
#define thread
#define threadgroup
#define threadgroup_imageblock
