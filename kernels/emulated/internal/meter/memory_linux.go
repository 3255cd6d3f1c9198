package meter

import "syscall"

const noReserve = syscall.MAP_NORESERVE
