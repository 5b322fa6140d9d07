"""From the paths of the configuration to the files that are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from ragpipe.core.resources import data_path
from ragpipe.data.faults import Faults
from ragpipe.data.file_formats import SUFFIXES, data_file
from ragpipe.data.recognition import foreign_shape
from ragpipe.data.settings import DatasetSettings
from ragpipe.data.text_lines import DataFile
from ragpipe.store.places import Place, is_remote, open_place, parent_of


@dataclass(frozen=True)
class Files:
    """The files with the records, in order, and those of each join. `display_path` is the path as the user gave it."""

    display_path: str
    main: tuple[DataFile, ...]
    joined: Mapping[str, tuple[DataFile, ...]]

    def state(self) -> dict[str, tuple[int, int, int]]:
        """Size, change time and inode of every file by its display path: what differs when a file is changed or replaced."""
        states = {}
        for file in self.all():
            try:
                stat = file.path.stat()
                states[file.display_path] = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
            except FileNotFoundError:
                states[file.display_path] = (-1, -1, -1)
        return states

    def all(self) -> tuple[DataFile, ...]:
        """Every file; joined ones come last."""
        return (*self.main, *(file for files in self.joined.values() for file in files))


def locate(settings: DatasetSettings, base: Path, cache: Path) -> Files:
    """All files of the data set; those of an object store are copied, and read from their copies.

    Raises DataError naming every one that is missing or is never loaded.
    """
    root = data_path(settings.path, base)
    place = open_place(settings.path, root, cache)

    def shape() -> str:
        return "" if settings.fields else foreign_shape(place.file or root, settings.path)

    faults = Faults(f"data set {settings.name!r}: {settings.path} cannot be used", shape)
    finder = _Finder(settings, place, faults)
    main = finder.main()
    joined = {}
    for name, join in settings.join.items():
        joined[name] = main if join.file is None else finder.role(join.file, join.format, f"join.{name}.file")
    faults.raise_all()
    return Files(settings.path, main, joined)


class _Finder:
    def __init__(self, settings: DatasetSettings, place: Place, faults: Faults):
        self._settings, self._place, self._faults = settings, place, faults

    def main(self) -> tuple[DataFile, ...]:
        settings, root = self._settings, self._place.file
        if root is not None and self._names_files():
            files = self.role("main", settings.format, "files")
            if files and root.absolute() not in [file.path.absolute() for file in files]:
                fix = "give the folder as dataset.path, or name the file in dataset.files.main"
                found = f"a file that is not in files.main: {', '.join(file.name for file in files[:5])}"
                self._faults.add(settings.path, "path", found, "one of them", fix)
            return files
        if root is not None:
            file = self._opened(root, settings.path, root.name, settings.format)
            return (file,) if file else ()
        if "main" not in settings.files:
            names = [name for name in self._place.names("*") if Path(name).suffix.lower() in SUFFIXES][:12]
            fix = f"give the path of a file, or dataset.files.main; in the folder: {', '.join(names) or 'no file that could be read'}"
            self._faults.add(settings.path, "path", "a folder", "a file, or a folder with files.main", fix)
            return ()
        return self.role("main", settings.format, "files")

    def _names_files(self) -> bool:
        """Whether `files.main` names files. Patterns alone say which files of a folder are read, and a file is read by itself."""
        names = self._settings.files.get("main", [])
        return any("*" not in name for name in ([names] if isinstance(names, str) else names))

    def role(self, role: str, form: str, key: str) -> tuple[DataFile, ...]:
        """The files that `files.<role>` names: one, several, or those that a pattern such as `*.json` finds, sorted."""
        files = self._settings.files
        if role not in files:
            near = get_close_matches(role, files, 1)
            fix = f"did you mean {near[0]!r}?" if near else f"add files.{role} to the data set"
            known = f"one of dataset.files: {', '.join(files) or 'none'}"
            self._faults.add(self._settings.path, key, repr(role), known, fix)
            return ()
        names_given = files[role]
        data_files = []
        for name in [names_given] if isinstance(names_given, str) else names_given:
            names = [name]
            if "*" in name:
                try:
                    names = self._place.names(name)
                except ValueError as error:
                    self._faults.add(self._settings.path, f"files.{role}", f"{name!r} ({error})", "a pattern")
                    continue
                if not names:
                    found = f"no file fits {name!r}"
                    self._faults.add(self._settings.path, f"files.{role}", found, "at least one file")
            data_files += [self._file(name, form) for name in names]
        return tuple(file for file in data_files if file)

    def _file(self, name: str, form: str) -> DataFile | None:
        label = self._settings.path
        if self._place.file is not None:
            label = parent_of(label) if is_remote(label) else str(Path(label).parent)
        shown = name if Path(name).is_absolute() else f"{label.rstrip('/')}/{name}"
        return self._opened(self._place.below(name), shown, name, form)

    def _opened(self, path: Path, shown: str, name: str, form: str) -> DataFile | None:
        """The file, with what the data set says of NaN and of empty cells."""
        settings = self._settings
        file = data_file(path, shown, name, form, settings.delimiter, self._faults)
        return file and replace(file, nan_is_null=settings.nan is None, empty_is_null=settings.empty is None)
