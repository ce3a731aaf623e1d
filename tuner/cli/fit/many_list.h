/* many_list.h: which configs of which requests: what record_many compiles and times.
 * in -> out: a file of lines "R REQUEST" and, behind each, "C CONFIG" -> an array of each. What
 * follows a tab is passed over. */
#ifndef TUNER_MANY_LIST_H
#define TUNER_MANY_LIST_H

#include "generator/config.h"
#include "generator/request.h"

struct ft_many_item {
  int request;
  struct ft_config config;
};

struct ft_many_list {
  struct ft_request *requests;
  int request_count;
  struct ft_many_item
      *items; /* those of a request are in a row; its first is what the others are timed beside */
  int item_count;
};

int ft_many_list_read(struct ft_many_list *list, const char *path);
void ft_many_list_free(struct ft_many_list *list);

#endif
