/* emulator_lab.h: what the tests of the emulated device share.
 * in -> out: name of a GPU -> session that emulates it; problem, config -> a run with its verdict;
 * an edit -> a copy of the templates with a bug in it. Failures of the lab itself fail the test. */
#ifndef TESTS_EMULATOR_LAB_H
#define TESTS_EMULATOR_LAB_H

#include <check.h>

#include "generator/status.h"
#include "runtime/fatune.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/problem_options.h"
#include "tuner/verify/shape.h"

/* In memory only. templates NULL: those built in. */
fatune_session *emulator_open(const char *gpu, const char *templates);

/* One run of one kernel. Right when status is FT_OK and error_ratio <= 1. */
struct emulator_run {
  int status;                      /* of the plan or the run */
  char fault[2048];                /* why it failed, in fatune's words */
  struct ft_comparison comparison; /* every row, where it did not fail */
  struct ft_text explanation;      /* of a wrong result */
};
/* config NULL: the default. */
void emulator_run(struct emulator_run *run, fatune_session *session,
                  const struct ft_problem_options *options, const char *config);
/* By a plan of the options' kernel class. */
void emulator_run_plan(struct emulator_run *run, fatune_session *session,
                       const struct ft_problem_options *options, fatune_plan *plan);
void emulator_run_free(struct emulator_run *run);
/* The plan of a request and a config, both as text. */
fatune_plan *emulator_plan(fatune_session *session, const char *request, const char *config);

/* The same by a session of its own on an H200. templates as in emulator_open. */
void emulator_run_alone(struct emulator_run *run, const char *templates,
                        const struct ft_problem_options *options, const char *config);

/* The same with a score function of this text; NULL: the built-in one of this name. */
void emulator_run_scored(struct emulator_run *run, const char *templates, const char *name,
                         const char *text, struct ft_problem_options options, const char *config);

/* Such a run of the request, LSE and dropout of 0.25 where it has any included; every row must be
 * right. scale 0: the usual one. */
void emulator_row_by_row(const char *request, enum ft_layout layout, double scale,
                         const char *config);
/* The options of such a run. */
struct ft_problem_options emulator_options(const char *request, enum ft_layout layout,
                                           uint64_t seed);

/* How the run must have ended: right, with a fault of the kernel, with a wrong result. */
void emulator_expect_right(const char *name, const struct emulator_run *run);
void emulator_expect_fault(const char *name, const struct emulator_run *run);
void emulator_expect_wrong(const char *name, const struct emulator_run *run);
/* is_fault: a fault is expected; else a wrong result. */
void emulator_expect_caught(const char *name, const struct emulator_run *run, bool is_fault);
/* All the words up to the first NULL are in the text; a failure begins with the name. */
void emulator_expect_words(const char *name, const char *text, const char *const words[],
                           int count);

/* A legal config, each as likely as any other; text to be freed. */
char *emulator_random_config(fatune_session *session, const struct ft_request *request,
                             uint64_t seed);
/* A run on this GPU by such a config must be right. */
void emulator_random_config_is_right(const char *gpu, const struct ft_problem_options *options);
char *emulator_request_text(const struct ft_request *request);

/* A folder of links to what templates/ has, in which one piece of text, there exactly once, is
 * another. */
struct planted {
  char folder[64];
};
struct planted emulator_plant(const char *file, const char *piece, const char *other);
/* Fails unless the file of templates/ has the piece, and has it once where `once` says so. Suites
 * run some of their bugs, and ask this of all. */
void emulator_expect_piece(const char *file, const char *piece, bool once);
#define EMULATOR_EXPECT_PIECES(bugs)                                                               \
  for (size_t bug_ = 0; bug_ < EMULATOR_COUNT(bugs); bug_++)                                       \
  emulator_expect_piece((bugs)[bug_].file, (bugs)[bug_].piece, true)
/* A bug to plant, and how a run shows it. */
struct emulator_bug {
  const char *name, *file, *piece, *other;
  const char *config; /* NULL: the suite's */
  const char *words;  /* of the fault; NULL: the result is wrong */
};
/* A run with the bug must end so. */
void emulator_catch(const struct emulator_bug *bug, const struct ft_problem_options *options,
                    const char *config);
/* Whether a run with the bug fails or is wrong, the first of so many problems by their seeds. */
bool emulator_sees(const struct planted *planted, const struct ft_problem_options *options,
                   const char *config, int problems);
/* The same in which a whole file is another. */
struct planted emulator_plant_file(const char *file, const char *text);
/* One more file of it. Nothing else may write there: a link leads to templates/. */
void emulator_plant_more(const struct planted *planted, const char *file, const char *text);
void emulator_unplant(const struct planted *planted);
/* The line of a file of the copy that holds this text, the first one. */
int emulator_line_of(const struct planted *planted, const char *file, const char *text);

/* FATUNE_TEST_SEED, else another one in every run. */
uint64_t emulator_seed(void);
/* The number of the thing that the i-th of so many runs takes: each run has its share of the count
 * things, and the seed chooses one of the share. */
size_t emulator_choose(int i, size_t runs, size_t count);

/* Runs for so many things: a third of them; under the sanitizer, which takes six times as long, a
 * sixth; all of them where the slow tests are wanted. */
int emulator_runs(size_t count);
/* Of an array of things: how many runs there are, and the number of the thing that the i-th takes.
 */
#define EMULATOR_COUNT(things) (sizeof(things) / sizeof *(things))
#define EMULATOR_RUNS(things)  emulator_runs(EMULATOR_COUNT(things))
#define EMULATOR_CHOOSE(i, things)                                                                 \
  emulator_choose(i, (size_t)EMULATOR_RUNS(things), EMULATOR_COUNT(things))

/* Random numbers, of a seed that failures are to print. */
extern uint64_t random_seed;
uint32_t random_word(void);
int below(int limit);

/* A float's pattern, a pattern's float. */
uint32_t bits_of(float value);
float float_of(uint32_t bits);

#endif
