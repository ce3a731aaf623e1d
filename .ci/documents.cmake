# documents.cmake: the manual page and bash's completion, made from the program's own help.
set(documents ${PROJECT_BINARY_DIR}/documents)
add_custom_command(OUTPUT ${documents}/fatune.1 ${documents}/fatune
  COMMAND ${PROJECT_SOURCE_DIR}/.ci/documents $<TARGET_FILE:fatune> ${documents}
  DEPENDS fatune ${PROJECT_SOURCE_DIR}/.ci/documents VERBATIM)
add_custom_target(documents ALL DEPENDS ${documents}/fatune.1)
install(FILES ${documents}/fatune.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${documents}/fatune DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
