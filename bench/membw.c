/* Read bandwidth of the memory: usage membw THREADS [MIB [REPEATS]]; prints the best in GB/s (1e9 bytes).
 *
 * Every thread reads its own share of one buffer that is far larger than the caches, all of them at once;
 * a pass counts from the last thread's start to the last one's end. Vectors of 64 bytes: the compiler makes
 * of them what the machine has (AVX-512, AVX2, SSE2, NEON). Pages are ordinary ones, as of a mapped file.
 * Build: cc -O3 -march=native membw.c -o membw -lpthread
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t vec __attribute__((vector_size(64)));

enum { MAX_THREADS = 64, MAX_REPEATS = 100, STRIDE = 8 };

typedef struct {
  const vec *at;
  size_t count; /* vectors, a multiple of STRIDE */
  int repeats;
  double start[MAX_REPEATS], end[MAX_REPEATS];
  uint64_t sum;
} share;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_here = PTHREAD_COND_INITIALIZER;
static int threads, waiting, generation;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void meet(void) { /* macOS has no pthread_barrier */
  pthread_mutex_lock(&lock);
  int mine = generation;
  if (++waiting == threads) {
    waiting = 0;
    generation++;
    pthread_cond_broadcast(&all_here);
  }
  while (mine == generation) pthread_cond_wait(&all_here, &lock);
  pthread_mutex_unlock(&lock);
}

static void *work(void *argument) {
  share *s = argument;
  vec sums[STRIDE] = {0};
  for (int r = 0; r < s->repeats; r++) {
    meet();
    s->start[r] = now();
    for (size_t i = 0; i < s->count; i += STRIDE)
      for (int k = 0; k < STRIDE; k++) sums[k] ^= s->at[i + (size_t)k];
    s->end[r] = now();
  }
  for (int k = 0; k < STRIDE; k++)
    for (int lane = 0; lane < 8; lane++) s->sum ^= sums[k][lane];
  return NULL;
}

int main(int argc, char **argv) {
  threads = argc > 1 ? atoi(argv[1]) : 1;
  long mib = argc > 2 ? atol(argv[2]) : 512;
  int repeats = argc > 3 ? atoi(argv[3]) : 9;
  if (threads < 1 || threads > MAX_THREADS || mib < 1 || repeats < 1 || repeats > MAX_REPEATS) {
    fprintf(stderr, "usage: membw THREADS [MIB [REPEATS]]\n");
    return 2;
  }
  size_t each = ((size_t)mib << 20) / (size_t)threads / sizeof(vec) / STRIDE * STRIDE;
  vec *buffer = NULL;
  if (posix_memalign((void **)&buffer, 4096, each * sizeof(vec) * (size_t)threads) != 0) return 1;
  memset(buffer, 1, each * sizeof(vec) * (size_t)threads);
  static share shares[MAX_THREADS];
  pthread_t ids[MAX_THREADS];
  for (int t = 0; t < threads; t++) {
    shares[t].at = buffer + each * (size_t)t;
    shares[t].count = each;
    shares[t].repeats = repeats;
    if (pthread_create(&ids[t], NULL, work, &shares[t]) != 0) return 1;
  }
  uint64_t sum = 0;
  for (int t = 0; t < threads; t++) {
    pthread_join(ids[t], NULL);
    sum ^= shares[t].sum;
  }
  double best = 0;
  for (int r = 0; r < repeats; r++) {
    double start = shares[0].start[r], end = shares[0].end[r];
    for (int t = 1; t < threads; t++) {
      if (shares[t].start[r] < start) start = shares[t].start[r];
      if (shares[t].end[r] > end) end = shares[t].end[r];
    }
    double rate = (double)each * sizeof(vec) * threads / (end - start) / 1e9;
    if (rate > best) best = rate;
  }
  fprintf(stderr, "checksum %llx\n", (unsigned long long)sum); /* so that the reads are not removed */
  printf("%.3f\n", best);
  return 0;
}
