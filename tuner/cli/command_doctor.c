/* command_doctor.c: `fatune doctor`: what is there, what is missing, and what works without it.
 * in -> out: driver, GPU, NVRTC, C++ compiler, caches, templates, environment -> one line each. */
#include "cache/folders.h"
#include "cache/store.h"
#include "generator/family.h"
#include "generator/lua_host.h"
#include "generator/status.h"
#include "runtime/device.h"
#include "runtime/emulator/cxx_search.h"
#include "runtime/kernel_source.h"
#include "runtime/nvml.h"
#include "runtime/session.h"
#include "tuner/cli/cli_explain.h"
#include "tuner/cli/cli_fit.h"
#include "tuner/cli/command.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum state { STATE_OK, STATE_MISSING, STATE_UNKNOWN, STATE_BAD };

struct doctor {
  struct cli *cli;
  fatune_session *session;
  json_t *checks;
  bool bad;
};

static void check(struct doctor *doctor, const char *name, enum state state, const char *value,
                  const char *consequence) {
  static const char *const names[] = {"ok", "missing", "unknown", "bad"};
  static const enum cli_style styles[] = {CLI_GOOD, CLI_BOLD, CLI_BOLD, CLI_BAD};
  json_t *const one = json_object();
  cli_json_set(one, "name", cli_json_text(name));
  cli_json_set(one, "state", cli_json_text(names[state]));
  cli_json_set(one, "value", cli_json_text(value));
  cli_json_set(one, "consequence", cli_json_text(state == STATE_OK ? "" : consequence));
  cli_json_append(doctor->checks, one);
  if (state == STATE_BAD) doctor->bad = true;

  struct cli *const cli = doctor->cli;
  cli_print(cli, "%-14s ", name);
  cli_styled(cli, styles[state], names[state]);
  cli_print(cli, "%*s%s\n", 9 - (int)strlen(names[state]), "", value);
  if (state != STATE_OK) cli_print(cli, "%24s%s\n", "", consequence);
}

/* Whether there is one. */
static bool check_driver(struct doctor *doctor) {
  const fatune_session *const session = doctor->session;
  struct ft_driver driver = {0};
  char line[64];
  int version = 0;
  if (session->has_device) {
    check(doctor, "driver", STATE_OK, session->device.driver, "");
    return true;
  }
  if (ft_driver_open(&driver) != FT_OK) {
    check(doctor, "driver", STATE_MISSING, ft_detail(),
          "kernels are compiled for other machines and emulated, nothing is timed");
    return false;
  }
  driver.driver_version(&version);
  snprintf(line, sizeof line, "CUDA %d.%d", version / 1000, version % 1000 / 10);
  check(doctor, "driver", STATE_OK, line, "");
  ft_driver_close(&driver);
  return true;
}

static void check_gpu(struct doctor *doctor, bool has_driver) {
  const fatune_session *const session = doctor->session;
  const struct ft_device *const device = &session->device;
  char line[320];
  if (!session->has_device) {
    check(doctor, "GPU", STATE_MISSING,
          has_driver ? session->no_device_detail : "none without a driver",
          "emit, compile, explain and tune with --gpu NAME work (tune predicts), and verify with "
          "--gpu emulator; bench and measuring do not");
    return;
  }
  snprintf(line, sizeof line, "%d: %s, %.0f GiB, class %s", device->ordinal, device->arch.name,
           (double)device->memory_bytes / (1 << 30), device->id);
  check(doctor, "GPU", STATE_OK, line, "");
  struct ft_nvml *nvml = NULL;
  ft_nvml_open(&nvml, &session->driver, device->handle);
  const int clock = ft_nvml_sm_clock(nvml);
  snprintf(line, sizeof line, "clocks are read: %d MHz now", clock);
  check(doctor, "NVML", clock > 0 ? STATE_OK : STATE_MISSING,
        clock > 0 ? line : "libnvidia-ml.so.1 does not answer",
        "everything works, but clocks are not recorded with trials");
  ft_nvml_close(nvml);
}

static void check_compiler(struct doctor *doctor) {
  struct ft_compiler *compiler;
  char line[1024], target[16];
  const int status = ft_session_compiler(doctor->session, &compiler);
  if (status != FT_OK) {
    check(doctor, "NVRTC", STATE_MISSING, ft_detail(),
          "kernels that are in a cache run; nothing can be compiled or tuned. A CUDA toolkit has "
          "it, and "
          "NVIDIA's wheel: pip install nvidia-cuda-nvrtc");
    return;
  }
  snprintf(line, sizeof line, "%s, %s", ft_compiler_version(compiler), ft_compiler_path(compiler));
  check(doctor, "NVRTC", STATE_OK, line, "");
  if (!doctor->session->has_device) return;
  ft_arch_target(&doctor->session->device.arch, target);
  const bool known = ft_compiler_supports(compiler, target) == FT_OK;
  check(doctor, "target", known ? STATE_OK : STATE_MISSING, known ? target : ft_detail(),
        "a newer NVRTC is needed for this GPU");
}

static void check_emulator(struct doctor *doctor) {
  char name[64], path[512], line[640];
  if (ft_emulator_compiler(name, path) != FT_OK) {
    check(doctor, "emulator", STATE_MISSING, ft_detail(), "everything but --gpu emulator works");
    return;
  }
  snprintf(line, sizeof line, "%s, %s", name, path);
  check(doctor, "emulator", STATE_OK, line, "");
}

static bool is_on_this_host(const char *path) {
  char *const folder = strdup(path);
  char *const slash = folder ? strrchr(folder, '/') : NULL;
  if (slash) slash[slash == folder] = '\0';
  const bool local = !slash || ft_folder_is_local(folder);
  free(folder);
  return local;
}

/* Whether a folder can be made in the nearest folder of the path that exists. This is tried,
 * because access rights alone do not tell. */
static bool can_be_made(const char *path) {
  char folder[4200], probe[4300];
  struct stat found;
  snprintf(folder, sizeof folder, "%s", path);
  do {
    char *const slash = strrchr(folder, '/');
    if (slash == NULL) return true;
    slash[slash == folder] = '\0';
  } while (stat(folder, &found) != 0 && strcmp(folder, "/") != 0);
  snprintf(probe, sizeof probe, "%s/.fatune-doctor-%ld", folder, (long)getpid());
  return mkdir(probe, 0700) == 0 && rmdir(probe) == 0;
}

/* A file that is not there yet is no fault: the first trial makes it. */
static void check_file(struct doctor *doctor, const char *name, const char *path, int64_t bytes) {
  char line[4200];
  if (path == NULL) {
    check(doctor, name, STATE_MISSING, "no folder for it (FATUNE_CACHE_DIR, XDG folders, HOME)",
          "everything works, but nothing is kept");
    return;
  }
  const bool there = access(path, F_OK) == 0, writable = access(path, W_OK) == 0;
  if (!there && !can_be_made(path)) {
    check(doctor, name, STATE_MISSING, path,
          "it cannot be made: everything works, but nothing is kept; FATUNE_CACHE_DIR chooses "
          "another place");
    return;
  }
  snprintf(line, sizeof line, "%s, %s", path,
           !there     ? "made when first needed"
           : writable ? "writable"
                      : "read-only");
  if (there) {
    const size_t length = strlen(line);
    snprintf(line + length, sizeof line - length, ", %lld bytes", (long long)bytes);
  }
  check(doctor, name, there && !is_on_this_host(path) ? STATE_UNKNOWN : STATE_OK, line,
        "its file system may be of a network: right, but slower, as no write-ahead log is used "
        "there; "
        "FATUNE_CACHE_DIR chooses another place");
}

/* What a layer is trusted for, or why it is not used. */
static void check_layers(struct doctor *doctor) {
  const struct ft_store *const store = doctor->session->store;
  int count;
  const struct ft_store_layer *const layers = ft_store_layers(store, &count);
  char line[4608];
  check(doctor, "trust", STATE_OK, ft_store_trust(store), "");
  if (count == 0) check(doctor, "system layers", STATE_OK, "none", "");
  for (int i = 0; i < count; ++i) {
    const bool used = layers[i].used; /* else the reason names the file */
    snprintf(line, sizeof line, "%s%s%s", used ? layers[i].path : "", used ? ": " : "",
             layers[i].why);
    check(doctor, "system layer", used ? STATE_OK : STATE_BAD, line,
          "what it holds is not used; cache/README.md tells what FATUNE_TRUST asks for");
  }
}

/* Of winners that ship: those that were measured last tell by what. */
struct shipped {
  int count;
  int64_t first, last;
  char device[96], driver[32], nvrtc[64];
};

static bool take_shipped(void *payload, const struct ft_trial *trial) {
  struct shipped *const shipped = payload;
  if (shipped->count == 0 || trial->at < shipped->first) shipped->first = trial->at;
  if (shipped->count == 0 || trial->at >= shipped->last) {
    shipped->last = trial->at;
    snprintf(shipped->device, sizeof shipped->device, "%s", trial->device);
    snprintf(shipped->driver, sizeof shipped->driver, "%s", trial->driver);
    snprintf(shipped->nvrtc, sizeof shipped->nvrtc, "%s", trial->nvrtc);
  }
  shipped->count++;
  return true;
}

static void check_shipped(struct doctor *doctor) {
  struct shipped shipped = {0};
  char line[320], first[16], last[16];
  if (ft_store_shipped(doctor->session->store, take_shipped, &shipped) != FT_OK) {
    check(doctor, "shipped", STATE_BAD, ft_detail(), "defaults and the model choose");
    return;
  }
  if (shipped.count == 0) return;
  cli_day(shipped.first, first);
  cli_day(shipped.last, last);
  const long long days = cli_days_since(shipped.last);
  snprintf(
      line, sizeof line,
      "%d winners, measured from %s to %s (%lld day%s ago), the last on %s, driver %s, NVRTC %s",
      shipped.count, first, last, days, days == 1 ? "" : "s", shipped.device, shipped.driver,
      shipped.nvrtc);
  check(doctor, "shipped", STATE_OK, line, "");
}

static void check_caches(struct doctor *doctor) {
  struct ft_store *const store = doctor->session->store;
  struct ft_store_stats stats = {0};
  const int faults = ft_store_faults(store);
  const int status = ft_store_stats(store, &stats);
  char line[160];
  check_file(doctor, "tuning", ft_store_tuning_path(store), stats.tuning_file_bytes);
  check_file(doctor, "kernels", ft_store_kernels_path(store), stats.kernels_file_bytes);
  snprintf(line, sizeof line, "%lld trials, %lld winners, %lld kernels", (long long)stats.trials,
           (long long)stats.winners, (long long)stats.kernels);
  const bool sound = status == FT_OK && ft_store_faults(store) == faults;
  check(doctor, "contents", sound ? STATE_OK : STATE_BAD,
        sound             ? line
        : status != FT_OK ? ft_detail()
                          : "see the warnings",
        "faults are misses: everything works, but slower; `fatune cache verify --repair`");
  check_layers(doctor);
  check_shipped(doctor);
}

static void check_templates(struct doctor *doctor) {
  const char *const folder = secure_getenv("FATUNE_TEMPLATE_DIR"); /* as the session reads it */
  char digest[FT_DIGEST_HEX], line[4200];
  ft_digest_hex(&doctor->session->templates, digest);
  snprintf(line, sizeof line, "%.16s, %s", digest,
           folder != NULL && folder[0] != '\0' ? folder : "built in");
  check(doctor, "templates", STATE_OK, line, "");
}

/* On the GPU at hand; where there is none, on the one that the project measures on. */
static void check_model(struct doctor *doctor) {
  const fatune_session *const session = doctor->session;
  struct ft_arch arch = session->device.arch;
  if (!session->has_device && ft_lua_gpu(session->lua, "h200", &arch) != FT_OK) return;
  for (int n = 0; ft_family_at(n) != NULL; ++n) {
    struct ft_text text = FT_TEXT_INIT;
    cli_fit_tell(ft_family_at(n), &arch, &text);
    check(doctor, "model", STATE_OK, cli_whole(&text), "");
    ft_text_free(&text);
  }
}

/* A mistyped variable has no effect and no other trace than this. */
static void check_environment(struct doctor *doctor) {
  static const char *const known[] = {"FATUNE_CACHE",
                                      "FATUNE_CACHE_DIR",
                                      "FATUNE_CXX",
                                      "FATUNE_EMULATOR_STEPS",
                                      "FATUNE_JIT",
                                      "FATUNE_LIBCUDA",
                                      "FATUNE_LIBNVML",
                                      "FATUNE_LIBNVRTC",
                                      "FATUNE_SYSTEM_PATH",
                                      "FATUNE_TEMPLATE_DIR",
                                      "FATUNE_TRUST",
                                      "FATUNE_LIBRARY",
                                      "FATUNE_BUILD_DIR",
                                      "FATUNE_HIDE_CUDA",
                                      "FATUNE_CACHE_CAP",
                                      "FATUNE_EMULATOR_SECONDS",
                                      "FATUNE_SHIPPED",
                                      "FATUNE_RECORD",
                                      "FATUNE_WORKER_SECONDS",
                                      "FATUNE_CHECK",
                                      "FATUNE_EMULATOR_HOOKS"};
  for (char **variable = environ; *variable != NULL; ++variable) {
    const size_t length = strcspn(*variable, "=");
    bool is_known = strncmp(*variable, "CUDA_VISIBLE_DEVICES=", 21) == 0;
    if (strncmp(*variable, "FATUNE_", 7) != 0 && !is_known) continue;
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
      is_known |= strlen(known[i]) == length && strncmp(*variable, known[i], length) == 0;
    }
    check(doctor, "environment", is_known ? STATE_OK : STATE_UNKNOWN, *variable,
          "no such variable: it has no effect");
  }
}

static int run(struct cli *cli) {
  struct doctor doctor = {.cli = cli};
  const int status = cli_session_open(cli, &doctor.session);
  if (status != FT_OK) return cli_fail(cli, status);
  doctor.checks = json_array();
  check(&doctor, "fatune", STATE_OK, fatune_version(), "");
  check_gpu(&doctor, check_driver(&doctor));
  check_compiler(&doctor);
  check_emulator(&doctor);
  check_templates(&doctor);
  check_model(&doctor);
  check_caches(&doctor);
  check_environment(&doctor);
  cli_json(cli, "checks", doctor.checks);
  fatune_session_close(doctor.session);
  return doctor.bad ? CLI_EXIT_FAILURE : CLI_EXIT_OK;
}

const struct command command_doctor = {
    .name = "doctor",
    .summary = "Tell what is there, what is missing and what works without it",
    .arguments = "",
    .details = "Exits with 0 unless something is broken; what is merely missing (a GPU on a build "
               "machine) is not.",
    .takes = CLI_DEVICE,
    .run = run};
