"""Classify scikit-learn's handwritten digits: fit, score, probabilities, confusions.

python examples/classify_digits.py [FOLDER]
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from sswim import Classifier
from sswim.plots import plot_confusion, plot_raster

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
X, y = load_digits(return_X_y=True)  # 1,797 images of 8 x 8 pixels, flattened
X_train, y_train, X_test, y_test = X[:1200], y[:1200], X[1200:], y[1200:]

# Neurons of the first layer see patches of the image; both layers are read.
model = Classifier(hidden=(375, 125), fields=(8, 8), random_state=0, verbose=0).fit(X_train, y_train)
print(f"accuracy {model.score(X_test, y_test):.3f}")

sure = model.predict_proba(X_test).max(axis=1)
least = sure.argmin()
print(f"least sure of image {least}: predicted {model.predict(X_test[[least]])[0]} with {sure[least]:.0%}, is {y_test[least]}")

figure = Figure(figsize=(11, 4.8), layout="constrained")
left, right = figure.subplots(1, 2)
plot_raster(model, X_test[0], left)
left.set_title(f"a {y_test[0]} on its way through the network")
plot_confusion(model, X_test, y_test, right)
figure.savefig(folder / "classify_digits.png", dpi=110)
