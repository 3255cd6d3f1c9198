package compile

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// folder is the path of the cache folder.
type folder string

// cacheFolder returns smelt/kernels in the user's cache folder, which it creates unless the
// home does not exist.
func cacheFolder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Dir(cache)); err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "smelt", "kernels")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	probe, err := os.MkdirTemp(dir, "making-")
	if err != nil {
		return "", err
	}
	return dir, os.Remove(probe)
}

// keep returns the path of the file with a name and key. It calls make if the file is missing
// or its contents differ from what was written.
func (f folder) keep(name, ext string, key [sha256.Size]byte, make func(to string) error) (string, error) {
	stem := fmt.Sprintf("%s-%x-", name, key[:10])
	there, err := filepath.Glob(filepath.Join(string(f), stem+"*"+ext))
	if err != nil {
		return "", err
	}
	for _, file := range there {
		sum, err := checksum(file)
		if err == nil && filepath.Base(file) == stem+sum+ext {
			return file, nil
		}
		os.Remove(file)
	}
	dir, err := os.MkdirTemp(string(f), "making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, name+ext)
	if err := make(made); err != nil {
		return "", err
	}
	sum, err := checksum(made)
	if err != nil {
		return "", err
	}
	file := filepath.Join(string(f), stem+sum+ext)
	return file, os.Rename(made, file)
}

func checksum(file string) (string, error) {
	b, err := os.ReadFile(file)
	return fmt.Sprintf("%x", sha256.Sum256(b))[:20], err
}
