/* Moves the wall clock of one process, and of what it starts: loaded before libc (LD_PRELOAD), it adds to every reading
 * of the time of day the seconds that are in the file named by SESAME_CLOCK, a signed 64-bit number which may change at any
 * time. Monotonic clocks are left alone, as they are when a machine's clock is set.
 *
 * The file is mapped once, so a reading is a load and a system call: nothing that a signal handler may not do. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("SESAME_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0)
    _exit(97);
  void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED)
    _exit(98);
  close(file);
  offset = mapped;
}

/* Before the constructor has run the clock is what it is. */
static int64_t moved(void) { return offset ? __atomic_load_n(offset, __ATOMIC_RELAXED) : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += moved();
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int result = (int)syscall(SYS_gettimeofday, now, zone);
  if (result == 0)
    now->tv_sec += moved();
  return result;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result)
    *result = now.tv_sec;
  return now.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
  return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}
