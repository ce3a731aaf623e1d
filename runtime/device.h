/* device.h: a GPU as the driver describes it.
 * in -> out: ordinal -> limits, rates, device class. */
#ifndef RUNTIME_DEVICE_H
#define RUNTIME_DEVICE_H

#include "generator/arch.h"
#include "generator/lua_host.h"
#include "runtime/driver.h"

/* A GPU as found: its limits as struct ft_arch and its identity. */
struct ft_device {
  cu_device handle;
  int ordinal;
  struct ft_arch arch; /* rates that the driver does not report are those of the most similar row of
                          the table */
  char id[96];         /* device class: "nvidia-h200/sm_90/132" */
  char driver[32];     /* "580.159.04", or CUDA's "13.0" where that is not told */
  int64_t memory_bytes;
};

int ft_device_read(struct ft_device *device, const struct ft_driver *driver, struct ft_lua *lua,
                   int ordinal);

/* The device class of a GPU of the table, which need not be in this machine. */
void ft_device_class(const struct ft_arch *arch, char id[96]);

#endif
