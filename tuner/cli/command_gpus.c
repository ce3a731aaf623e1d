/* command_gpus.c: `fatune gpus`: the GPUs known by name.
 * in -> out: templates/gpus.lua, the GPU in the machine -> a table. */
#include "generator/lua_host.h"
#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/cli/cli_table.h"
#include "tuner/cli/command.h"

static json_t *gpu_json(const struct ft_arch *arch, const char *target, bool here) {
  json_t *const gpu = json_object();
  cli_json_set(gpu, "name", cli_json_text(arch->name));
  cli_json_set(gpu, "target", cli_json_text(target));
  cli_json_set(gpu, "here", json_boolean(here));
  cli_json_set(gpu, "sm_count", json_integer(arch->sm_count));
  cli_json_set(gpu, "smem_per_block", json_integer(arch->smem_per_block));
  cli_json_set(gpu, "l2_bytes", json_integer(arch->l2_bytes));
  cli_json_set(gpu, "clock_ghz", cli_json_real(arch->clock_ghz));
  cli_json_set(gpu, "dram_gbs", cli_json_real(arch->dram_gbs));
  cli_json_set(gpu, "mma_tflops",
               cli_json_real(arch->mma_flops_per_clk * arch->sm_count * arch->clock_ghz * 1e-3));
  return gpu;
}

static void add(struct cli_table *table, json_t *list, const struct ft_arch *arch, bool here) {
  char target[16];
  ft_arch_target(arch, target);
  cli_table_add(table, "%s", arch->name);
  cli_table_add(table, "%s", target);
  cli_table_add(table, "%d", arch->sm_count);
  cli_table_add(table, "%d", arch->smem_per_block / 1024);
  cli_table_add(table, "%.0f", (double)arch->l2_bytes / (1 << 20));
  cli_table_add(table, "%.2f", arch->clock_ghz);
  cli_table_add(table, "%.0f", arch->dram_gbs);
  cli_table_add(table, "%.0f", arch->mma_flops_per_clk * arch->sm_count * arch->clock_ghz * 1e-3);
  cli_table_add(table, "%s", here ? "in this machine" : "");
  cli_json_append(list, gpu_json(arch, target, here));
}

static int run(struct cli *cli) {
  fatune_session *session = NULL;
  struct cli_table table;
  struct ft_arch arch;
  const int status = cli_session_open(cli, &session);
  if (status != FT_OK) return cli_fail(cli, status);
  json_t *const list = json_array();
  cli_table_begin(&table, "name|target|>SMs|>smem KiB|>L2 MiB|>GHz|>GB/s|>mma TFLOP/s|");
  if (session->has_device) add(&table, list, &session->device.arch, true);
  for (int i = 0; ft_lua_gpu_at(session->lua, i, &arch) == FT_OK; ++i) {
    add(&table, list, &arch, false);
  }
  cli_table_end(cli, &table);
  cli_note(cli, "--gpu emulator:NAME emulates one of them on the CPU");
  cli_json(cli, "gpus", list);
  fatune_session_close(session);
  return CLI_EXIT_OK;
}

const struct command command_gpus = {
    .name = "gpus",
    .summary = "List the GPUs that --gpu knows",
    .arguments = "",
    .details =
        "--gpu also takes a target (sm_90), which is any GPU of that compute capability. Case "
        "and punctuation are ignored. emulator:NAME is a GPU of the table emulated on the CPU, for "
        "verify and tune; emulator alone is emulator:a100.",
    .takes = CLI_DEVICE,
    .run = run};
