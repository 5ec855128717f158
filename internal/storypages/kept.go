package main

import (
	"archive/zip"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// judgedFiles lists the files of a run directory from which its verdict, words and picture are made.
var judgedFiles = []string{
	results.FileScenario, results.FileEnv, results.FileFaults, results.FileObserved, results.FileDrawn,
	results.DirHistory + "/*", results.DirLatency + "/*",
}

// archive returns the file that keeps the runs of a story: a folder for the story, and one for each twin.
func archive(story string) string { return filepath.Join(runsDir, story+".zip") }

// keep puts a run directory into the archive of its story, in place of an earlier run of the same scenario. It drops
// runs of scenarios that are not among the forms.
func keep(file, dir, scenario string, forms []string) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".kept-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // already gone if it was renamed
	out := zip.NewWriter(tmp)
	out.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser,
		error,
	) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	err = errors.Join(copyOthers(out, file, scenario, forms), addRun(out, dir, scenario), out.Close(), tmp.Close())
	if err != nil {
		return err
	}
	if err := os.Chmod(tmp.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// copyOthers copies the runs of all forms but one, as they are.
func copyOthers(out *zip.Writer, file, but string, forms []string) error {
	old, err := zip.OpenReader(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range old.File {
		form, _, _ := strings.Cut(f.Name, "/")
		if form != but && slices.Contains(forms, form) {
			err = errors.Join(err, out.Copy(f))
		}
	}
	return errors.Join(err, old.Close())
}

// addRun adds the files of a run directory, without their dates: keeping a run again changes nothing.
func addRun(out *zip.Writer, dir, scenario string) error {
	for _, pattern := range judgedFiles {
		files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil {
			return err
		}
		for _, file := range files {
			name, err := filepath.Rel(dir, file)
			if err != nil {
				return err
			}
			if err := addFile(out, file, path.Join(scenario, filepath.ToSlash(name))); err != nil {
				return err
			}
		}
	}
	return nil
}

func addFile(out *zip.Writer, file, name string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if filepath.Ext(name) == filepath.Ext(history.Pattern) {
		data = transposed(data, history.RecordSize)
	}
	w, err := out.Create(name)
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// transposed moves the first bytes of all rows to the front, then the second ones, and so on. A history's records of
// one size then take a quarter less in an archive. Bytes after the last whole row stay.
func transposed(data []byte, row int) []byte {
	out, rows := slices.Clone(data), len(data)/row
	for i := range rows * row {
		out[i%row*rows+i/row] = data[i]
	}
	return out
}

// straight undoes transposed.
func straight(data []byte, row int) []byte {
	out, rows := slices.Clone(data), len(data)/row
	for i := range rows * row {
		out[i] = data[i%row*rows+i/row]
	}
	return out
}

// eachKept unpacks each run in the archive of a story into its own folder, and calls read.
func eachKept(file string, read func(dir, scenario string) error) error {
	r, err := zip.OpenReader(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	forms, err := fs.ReadDir(r, ".")
	if err != nil {
		return err
	}
	for _, form := range forms {
		if err := unpacked(r, form.Name(), read); err != nil {
			return fmt.Errorf("%s, %s: %w", file, form.Name(), err)
		}
	}
	return nil
}

// unpacked unpacks one run into a folder, calls read, and removes the folder.
func unpacked(r fs.FS, scenario string, read func(dir, scenario string) error) (err error) {
	run, err := fs.Sub(r, scenario)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lockquake-kept-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, run); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, results.DirHistory, history.Pattern))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, straight(data, history.RecordSize), 0o600)
		}
		if err != nil {
			return err
		}
	}
	return read(dir, scenario)
}
