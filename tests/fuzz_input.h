/* fuzz_input.h: one input of the fuzzer. in -> out: "kind\n" and bytes -> the reader of that kind
 * has taken or refused them; what it took comes out again the same, else the process aborts. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>

/* false: the input names no kind. Kinds: request, config, trial, kernel, image, options (words by
 * lines), score (Lua), store (triples of bytes: place, place, value, written over a sound one). */
bool fuzz_input(const unsigned char *input, size_t size);

#endif
