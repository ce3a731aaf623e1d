/* cli_given.h: what a command line gave. cli_request and cli_options fill it in. */
#ifndef TUNER_CLI_GIVEN_H
#define TUNER_CLI_GIVEN_H

#include <stdbool.h>
#include <stdint.h>

#include "generator/request_fields.h"
#include "tuner/search/tune_options.h"

#define CLI_EMULATOR "emulator" /* of --gpu emulator, --gpu emulator:NAME */

/* Bits: which groups of options a command has. */
enum cli_takes {
  CLI_REQUESTS = 1,       /* REQUEST..., --pass, --head-dim, ..., --shapes */
  CLI_ONE_REQUEST = 2,    /* with CLI_REQUESTS: exactly one, or both passes of one */
  CLI_GPU = 4,            /* --gpu */
  CLI_CONFIG = 8,         /* --config */
  CLI_SEARCH = 16,        /* --effort, --budget, --jobs, --shard, --if-missing, --again */
  CLI_OUTPUT = 32,        /* -o */
  CLI_CACHE = 64,         /* --cap, --repair, --all, --allow-empty, --sign; free words */
  CLI_SEED = 128,         /* --seed */
  CLI_DEVICE = 256,       /* --device */
  CLI_ROWS = 512,         /* --rows */
  CLI_SCORE_ALONE = 1024, /* with --score no request is needed */
  CLI_QUANTISE = 2048,    /* --from, --descales, ...; of a request what a tensor has */
  CLI_LSE = 4096,         /* --no-lse */
  CLI_COLD = 8192         /* --cold */
};

enum cli_color { CLI_COLOR_AUTO, CLI_COLOR_ALWAYS, CLI_COLOR_NEVER };

/* A request being put together from options and single words; finished by cli_request_end. */
struct cli_draft {
  struct ft_request fields;
  bool by_option;                /* any request option was given */
  bool both;                     /* --pass both, or a text that begins with it */
  bool given[FT_REQUEST_FIELDS]; /* by option */
  const char *shapes;            /* --shapes FILE */
  struct ft_text words;          /* a request given as separate words */
};

struct cli_options {
  struct cli_draft draft;
  struct ft_request *requests; /* owned */
  int request_count;
  struct ft_text damaged; /* a line for each line of --shapes that is no request */
  double dropout;         /* probability of a run; 0: not given */

  const char *gpu;     /* NULL: not given. All strings are argv's */
  const char *emulate; /* the GPU of --gpu emulator[:GPU]; NULL: none is emulated */
  int device;          /* 1 + CUDA ordinal; 0: the first */
  const char *config;
  const char *score;    /* of all requests */
  int64_t score_number; /* of score, when the session is open */
  const char *output;

  enum ft_effort effort;
  double budget_seconds;
  int jobs, shard, shards;
  const char *claims; /* folder; NULL: requests are shared out beforehand */
  bool if_missing, again;
  uint64_t seed; /* 0: not given */
  int rows;      /* checked per problem; 0: default */
  bool no_lse;   /* of a forward O alone is asked for */
  bool cold;     /* L2 is overwritten before each run that is timed */

  const char *from, *descales; /* files of quantise */
  bool rotate;
  uint64_t rotate_seed;
  int descale_rows; /* 0: one descale of all rows */

  int64_t cap; /* -1: not given */
  bool repair, all, allow_empty;
  const char *sign, *passphrase_file; /* of export: files */
  char **words;                       /* of a command with CLI_CACHE; part of argv */
  int word_count;

  const char *cache_dir;
  bool json;
  int verbosity; /* -1 quiet, 0, 1 verbose */
  enum cli_color color;
};

#endif
