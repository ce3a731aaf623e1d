# layers_again.cmake: layers once more, by other options. in -> out: a layer's sources -> <layer>_counted,
# <layer>_watched, which tests/short_forms.cmake links.
function(add_layer_again name layer)
  get_target_property(sources ${layer} SOURCES)
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(${name} PRIVATE fatune_flags dep::lua dep::sodium dep::jansson dep::sqlite)
  target_compile_options(${name} PRIVATE -w ${ARGN}) # of what is wrong the layer itself has told
  add_dependencies(${name} ${layer}) # which has what both are made of made
endfunction()
add_layer_again(cache_counted cache -O0 --coverage)
add_layer_again(cache_watched cache -O1 -fsanitize=thread)
add_layer_again(runtime_watched runtime -O1 -fsanitize=thread)
