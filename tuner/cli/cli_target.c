/* cli_target.c: which GPU a command works for.
 * in -> out: --gpu NAME, the GPU in the machine -> struct cli_target. */
#include "tuner/cli/cli_target.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "generator/close_word.h"
#include "generator/lua_host.h"
#include "generator/status.h"
#include "runtime/device.h"
#include "runtime/session.h"
#include "tuner/cli/cli_values.h"

#define STILL_WORKS                                                                                \
  "without a GPU these work: tune, emit, compile and explain with --gpu NAME (tune predicts), "    \
  "verify with --gpu emulator, quantise with --gpu emulator:h200, cache, gpus, doctor"

static void use_session_gpu(const fatune_session *session, struct cli_target *target) {
  const bool emulated = session->driver.emulated;
  *target =
      (struct cli_target){.arch = session->device.arch, .here = !emulated, .emulated = emulated};
  snprintf(target->id, sizeof target->id, "%s", session->device.id);
  ft_arch_target(&target->arch, target->name);
}

/* Whether `word` is one of the '-'-separated words of a device class, or two neighbours of them
 * ("rtx3090" in "nvidia-geforce-rtx-3090/sm_86/82"). */
static bool has_word(const char *id, const char *word, size_t length) {
  const size_t end = strcspn(id, "/");
  for (size_t from = 0; from < end; from += strcspn(id + from, "-/") + 1) {
    size_t matched = 0;
    int words = 0;
    for (size_t i = from; i <= end && words < 2; ++i) {
      if (i == end || id[i] == '-') {
        ++words;
        if (matched == length) return true;
      } else if (matched < length && id[i] == tolower((unsigned char)word[matched])) {
        ++matched;
      } else {
        break;
      }
    }
  }
  return false;
}

/* Whether the GPU asked for is the one in the machine. The driver calls an "a100" "NVIDIA
 * A100-SXM4-80GB"; the form factor "sxm" it often leaves out. */
static bool is_here(const fatune_session *session, const char *name, const struct ft_arch *arch) {
  if (!session->has_device || session->device.arch.sm != arch->sm) return false;
  if (strncasecmp(name, "sm", 2) == 0) return true;
  if (session->device.arch.sm_count != arch->sm_count) return false;
  for (const char *word = name; *word != '\0';) {
    size_t length = 0;
    while (isalnum((unsigned char)word[length])) ++length;
    const bool form_factor = length == 3 && strncasecmp(word, "sxm", 3) == 0;
    if (length > 0 && !form_factor && !has_word(session->device.id, word, length)) return false;
    word += length + (word[length] != '\0');
  }
  return true;
}

/* The detail lists the known names; put the one that was probably meant in front. */
int cli_target_unknown(fatune_session *session, const char *name, bool emulated) {
  struct ft_arch row, closest = {.name = ""};
  int least = 1000;
  for (int i = 0; ft_lua_gpu_at(session->lua, i, &row) == FT_OK; ++i) {
    const int distance = ft_edit_distance(name, row.name);
    if (distance >= least || !ft_is_close(name, row.name)) continue;
    least = distance;
    closest = row;
  }
  ft_lua_gpu(session->lua, name, &row); /* for its detail again: the loop may have changed it */
  if (!emulated && ft_is_close(name, CLI_EMULATOR)) {
    return ft_fail_within(FT_E_ARGUMENT, "--gpu (did you mean '%s'?)", CLI_EMULATOR);
  }
  if (closest.name[0] == '\0') return ft_fail_within(FT_E_ARGUMENT, "--gpu");
  return ft_fail_within(FT_E_ARGUMENT, "--gpu (did you mean '%s%s'?)",
                        emulated ? CLI_EMULATOR ":" : "", closest.name);
}

int cli_target_find(struct cli *cli, fatune_session *session, struct cli_target *target) {
  const char *const name = cli->options.gpu;
  const bool of_session = name == NULL || strcmp(name, "auto") == 0 || cli->options.emulate != NULL;
  if (of_session && session->has_device) {
    use_session_gpu(session, target);
    return FT_OK;
  }
  if (of_session) {
    return ft_fail(FT_E_NO_DRIVER, "%s%s: %s; %s", name == NULL ? "no --gpu given" : "--gpu ",
                   name == NULL ? "" : name, session->no_device_detail, STILL_WORKS);
  }
  *target = (struct cli_target){0};
  const int status = ft_lua_gpu(session->lua, name, &target->arch);
  if (status == FT_E_NOT_FOUND) return cli_target_unknown(session, name, false);
  FT_TRY(status);
  if (is_here(session, name, &target->arch)) {
    use_session_gpu(session, target);
    return FT_OK;
  }
  ft_device_class(&target->arch, target->id);
  ft_arch_target(&target->arch, target->name);
  return FT_OK;
}

int cli_target_run(struct cli *cli, fatune_session *session, struct cli_target *target) {
  FT_TRY(cli_target_find(cli, session, target));
  if (target->here || target->emulated) return FT_OK;
  return ft_fail(
      FT_E_NO_DRIVER, "--gpu '%s' is not in this machine (%s) and '%s' has to run on it; %s",
      cli->options.gpu, session->has_device ? session->device.arch.name : session->no_device_detail,
      cli->command, STILL_WORKS);
}

int cli_target_time(struct cli *cli, fatune_session *session, struct cli_target *target) {
  FT_TRY(cli_target_run(cli, session, target));
  if (!target->emulated) return FT_OK;
  return ft_fail(
      FT_E_NO_DRIVER,
      "--gpu %s: the emulator has no clock, nothing it does can be timed; `fatune verify "
      "--gpu %s` checks results, `fatune tune --gpu %s` predicts times",
      cli->options.gpu, cli->options.gpu, cli->options.emulate);
}

void cli_json_target(struct cli *cli, const struct cli_target *target) {
  json_t *const gpu = json_object();
  cli_json_set(gpu, "name", cli_json_text(target->arch.name));
  cli_json_set(gpu, "class", cli_json_text(target->id));
  cli_json_set(gpu, "target", cli_json_text(target->name));
  cli_json_set(gpu, "here", json_boolean(target->here));
  cli_json_set(gpu, "emulated", json_boolean(target->emulated));
  cli_json(cli, "gpu", gpu);
}
