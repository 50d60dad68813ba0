"""Progress that a test looks at, or that stops a run as a person would."""


class RecordedTask:
    """A task that remembers what it was told, and interrupts after so many steps."""

    def __init__(self, interrupt_at=None):
        self.reached, self.notes, self.measured, self._interrupt_at = [], [], [], interrupt_at

    def reach(self, done, note=None):
        self.reached.append(done)
        self.notes.append(note)
        if self._interrupt_at is not None and len(self.reached) == self._interrupt_at:
            raise KeyboardInterrupt

    def note(self, text):
        self.notes.append(text)

    def measure(self, step, values):
        self.measured.append((step, dict(values)))

    def end(self, done, note=None):
        self.reached.append(done)
        self.notes.append(note)


class RecordedProgress:
    """Progress that remembers which tasks began, and what was said."""

    def __init__(self):
        self.begun, self.said = [], []

    def enter(self, stage):
        self.said.append(stage)

    def begin(self, title, total=None, *, name=""):
        self.begun.append((title, RecordedTask()))
        return self.begun[-1][1]

    def say(self, text, heading=""):
        self.said.append(text)

    def remark(self, text):
        self.said.append(text)
