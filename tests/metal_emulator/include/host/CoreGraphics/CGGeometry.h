#pragma once

typedef double CGFloat;
typedef struct CGSize {
  CGFloat width, height;
} CGSize;
typedef struct CGPoint {
  CGFloat x, y;
} CGPoint;
typedef struct CGRect {
  CGPoint origin;
  CGSize size;
} CGRect;
