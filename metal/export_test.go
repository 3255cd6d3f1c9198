package metal

var CheckLaunches = checkLaunches
