/* cli_shard.h: which share of the work this process has.
 * in -> out: --shard K/N, or auto and the environment of who started it -> index and count. */
#ifndef TUNER_CLI_SHARD_H
#define TUNER_CLI_SHARD_H

/* Reads K/N; auto; or auto/N, which is for environments that tell the index alone. *shard counts
 * from 0. FT_E_ARGUMENT names the option or the variable, its value and what is allowed. */
int cli_shard(const char *option, const char *text, int *shard, int *shards);

#endif
