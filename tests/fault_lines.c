/* fault_lines.c: every command in its forms, and a program that makes every public call.
 * in -> out: fault_lines.h. */
#include "tests/fault_lines.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const struct fault_line alone[] = {
    {.words = "gpus"},
    {.words = "gpus --json"},
    {.words = "doctor", .tells = ""},
    {.words = "emit d64 nq512 --gpu a100"},
    {.words = "emit d64 nq512 --gpu a100 --json"},
    {.words = "explain d64 nq512 --gpu a100", .tells = "NVRTC missing"},
    {.words = "explain d64 nq512 --gpu a100 --json", .tells = "\"nvrtc\": null"},
    {.words = "explain --score alibi"},
    {.words = "explain d64 nq512 --gpu a100",
     .tells = "NVRTC missing",
     .with = "FATUNE_CACHE=memory FATUNE_SYSTEM_PATH=%s"},
    {.words = "report d64 nq512 --gpu a100", .tells = "\"nvrtc\":null"},
    {.words = "report d64 nq512 --gpu a100 --json -o %s/report.html", .tells = ""},
    {.words = "compile d64 nq512 --gpu a100 -o %s/kernel.cubin", .tells = ""},
    {.words = "compile d64 nq512 --gpu a100 --json -o %s/kernel.cubin", .tells = ""},
    {.words = "compile d64 nq512 --gpu a100 -o %s/kernel.cubin",
     .tells = "",
     .with = "FATUNE_CACHE=off"},
    {.words = "tune d64 nq1024 --gpu a100 --effort quick --shard 1/7 -q", .tells = ""},
    {.words = "tune --shapes %s/kept/shapes --gpu a100 --effort quick --shard 1/11 --json",
     .tells = ""},
    {.words = "cache path"},
    {.words = "cache list"},
    {.words = "cache list --json"},
    {.words = "cache list --all --json"},
    {.words = "cache stats"},
    {.words = "cache stats --json"},
    {.words = "cache stats", .with = "FATUNE_CACHE_DIR=%s/fresh/folder"},
    {.words = "cache verify"},
    {.words = "cache verify --repair"},
    {.words = "cache verify %s/sm_80.fatune"},
    {.words = "cache verify --json %s/sm_80.fatune"},
    {.words = "cache gc --cap 1M"},
    {.words = "cache export --gpu a100 -o %s/new.fatune"},
    {.words =
         "cache export --gpu a100 -o %s/new.fatune --sign " FATUNE_TESTS_DIR "/signed/test.key"},
    {.words = "cache export --gpu a100 -o %s/new.trials"},
    {.words = "cache import %s/sm_80.fatune"},
    {.words = "cache import %s/sm_80.fatune", .with = "FATUNE_CACHE_DIR=%s/fresh"},
    {.words = "cache merge %s/theirs.db"},
};

static const struct fault_line on_gpu[] = {
    {.words = "doctor", .tells = ""},
    {.words = "emit d64 nq256"},
    {.words = "explain 'backward d64 nq256'", .tells = "NVRTC missing"},
    {.words = "compile d64 nq256 -o %s/kernel.cubin", .tells = ""},
    {.words = "report 'backward d16 nq16'", .tells = "\"nvrtc\":null"},
    {.words = "quantise d16 nq16 --from %s/kept/tensor -o %s/bytes --descales %s/descales",
     .tells = ""},
    {.words = "bench d16 nq16", .tells = ""},
    {.words = "bench d16 nq16 --json", .tells = ""},
    {.words = "verify d16 nq16", .tells = "", .code = 7},
    {.words =
         "tune --gpu auto --effort quick --shard 1/20 'backward d16 nq16' 'forward d16 nq999' -q",
     .tells = "",
     .code = 5},
    {.words = "calls", .calls = true},
    {.words = "calls", .with = "FATUNE_RECORD=%s/record", .calls = true},
    {.words = "tune", .tells = "", .calls = true, .code = 1},
    {.words = "verify d16 nq16 --gpu emulator", .tells = ""},
};

const struct fault_lines fault_lines_alone = {alone, COUNT(alone)},
                         fault_lines_on_gpu = {on_gpu, COUNT(on_gpu)};
