/* many_list.c: which configs of which requests. in -> out: lines of text -> arrays. */
#include "tuner/cli/fit/many_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"

/* Room for one more. Arrays have a capacity of powers of two. */
static int grow(void **array, int count, size_t size) {
  if (count > 0 && (count & (count - 1)) != 0) return FT_OK;
  void *const grown = realloc(*array, size * (size_t)(count > 0 ? 2 * count : 1));
  if (!grown) return ft_fail(FT_E_MEMORY, "no memory for the list");
  *array = grown;
  return FT_OK;
}

static int add_request(struct ft_many_list *list, const char *text) {
  FT_TRY(grow((void **)&list->requests, list->request_count, sizeof *list->requests));
  FT_TRY(ft_request_parse(&list->requests[list->request_count], text));
  list->request_count += 1;
  return FT_OK;
}

static int add_config(struct ft_many_list *list, const char *text) {
  if (list->request_count == 0) return ft_fail(FT_E_ARGUMENT, "a config before the first request");
  FT_TRY(grow((void **)&list->items, list->item_count, sizeof *list->items));
  struct ft_many_item *const item = &list->items[list->item_count];
  FT_TRY(ft_config_parse(&item->config, text));
  item->request = list->request_count - 1;
  list->item_count += 1;
  return FT_OK;
}

static int read_line(struct ft_many_list *list, char *line) {
  line[strcspn(line, "\t\r\n")] = '\0';
  if (line[0] == '\0' || line[0] == '#') return FT_OK;
  if (strncmp(line, "R ", 2) == 0) return add_request(list, line + 2);
  if (strncmp(line, "C ", 2) == 0) return add_config(list, line + 2);
  return ft_fail(FT_E_ARGUMENT, "neither \"R REQUEST\" nor \"C CONFIG\": %.80s", line);
}

int ft_many_list_read(struct ft_many_list *list, const char *path) {
  char *line = NULL;
  size_t room = 0;
  int status = FT_OK, number = 0;
  *list = (struct ft_many_list){0};
  FILE *const file = fopen(path, "re");
  if (!file) return ft_fail(FT_E_IO, "%s cannot be read", path);
  while (status == FT_OK && getline(&line, &room, file) >= 0) {
    number += 1;
    status = read_line(list, line);
  }
  free(line);
  fclose(file);
  if (status == FT_OK) return FT_OK;
  ft_many_list_free(list);
  return ft_fail_within(status, "%s, line %d", path, number);
}

void ft_many_list_free(struct ft_many_list *list) {
  free(list->requests);
  free(list->items);
  *list = (struct ft_many_list){0};
}
