# python.cmake: the compiled part of the Python package (python/binding.c, node.c, recent.c). It lies beside the library, and in the folder
# of the wheel. Python's stable ABI: one file for all from 3.9 on.
find_package(Python3 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python3_Development.Module_FOUND)
  message(STATUS "no Python.h: the Python package will go by ctypes alone")
elseif(NOT FATUNE_SANITIZE)
  add_library(python_binding MODULE python/binding.c python/node.c python/recent.c)
  target_include_directories(python_binding SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
  target_link_libraries(python_binding PRIVATE fatune_flags)
  # What PyTorch throws passes node.c. With -fexceptions gcov would count two branches for each call, of which one throws:
  # a coverage build has the tables alone that unwinding needs.
  target_compile_options(python_binding PRIVATE
    $<IF:$<BOOL:${FATUNE_COVERAGE}>,-fasynchronous-unwind-tables,-fexceptions>)
  target_link_options(python_binding PRIVATE LINKER:--as-needed LINKER:--strip-all)
  set_target_properties(python_binding PROPERTIES PREFIX "" OUTPUT_NAME _binding SUFFIX .abi3.so
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  if(TARGET standalone)
    add_custom_command(TARGET python_binding POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/standalone
      COMMAND ${CMAKE_COMMAND} -E copy
      $<TARGET_FILE:python_binding> ${PROJECT_BINARY_DIR}/standalone/$<TARGET_FILE_NAME:python_binding>)
    add_dependencies(standalone python_binding)
  endif()
endif()
