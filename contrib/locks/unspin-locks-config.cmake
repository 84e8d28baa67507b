# SPDX-License-Identifier: MIT OR Apache-2.0
# find_package(unspin-locks), then target_link_libraries(program unspin::locks): headers only.
get_filename_component(_unspin_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET unspin::locks)
  add_library(unspin::locks INTERFACE IMPORTED)
  set_target_properties(unspin::locks PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_unspin_prefix}/include")
endif()
unset(_unspin_prefix)
