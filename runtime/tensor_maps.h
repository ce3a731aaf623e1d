/* tensor_maps.h: the tensors of a run as TMA wants them described.
 * in -> out: tensors -> their tensor maps. */
#ifndef RUNTIME_TENSOR_MAPS_H
#define RUNTIME_TENSOR_MAPS_H

#include "generator/arguments.h"
#include "generator/request.h"
#include "runtime/driver.h"
#include "runtime/map_cache.h"

/* A tensor of a launch, and where its map goes. */
struct ft_mapped {
  const char *name;
  struct ft_tensor_map *map;
  const struct ft_arg_tensor *tensor;
  int columns, rows, heads, batch, box_rows;
  /* The rows are those of sequences, packed, and batch is 1: five dimensions, of which three are
   * along the rows (templates/parts/rows_of_sequences.cu.in). */
  bool ragged;
  int packed;   /* heads whose rows lie beside each other in a box; 0: four dimensions do */
  int of_query; /* rows of a query in a box, as many as heads or more; 1: no heads are packed */
  enum ft_dtype dtype;
  bool heads_apart; /* the blocks that read different heads run far apart in time */
};

/* count: up to FT_MAP_TENSORS. cache: where maps are looked for and kept; NULL: nowhere.
 * FT_E_ARGUMENT where a tensor lies as TMA cannot take it. */
int ft_map_tensors(const struct ft_mapped *tensors, int count, struct ft_map_cache *cache,
                   const struct ft_driver *driver);

#endif
