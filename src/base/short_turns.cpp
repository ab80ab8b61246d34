#include "base/short_turns.h"

#if defined(__linux__)
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace espalier::base {

void ask_for_short_turns() {
#if defined(__linux__)
  constexpr unsigned long turn_ns = 100'000;  // the shortest that Linux grants
  sched_attr attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  // Under another policy the same field means something else.
  if (attributes.sched_policy != SCHED_NORMAL) return;
  attributes.sched_runtime = turn_ns;
  syscall(SYS_sched_setattr, 0, &attributes, 0);  // a wish: may fail
#endif
}

}  // namespace espalier::base
